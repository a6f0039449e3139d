"""What durable stores are told: records of what happens, gathered in groups."""
