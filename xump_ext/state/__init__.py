"""The nouns: engine, queue, entry, selector as C structs, and the containers that hold them."""
