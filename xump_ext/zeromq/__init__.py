"""Whole messages of a ZeroMQ socket, by the functions of the libzmq that the program has loaded."""
