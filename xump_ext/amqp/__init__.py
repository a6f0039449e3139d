"""The bytes of AMQP 0-9-1: frames read from the socket's buffer, and written into one."""
