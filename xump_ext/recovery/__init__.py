"""Opening a durable store: its records become queues again."""
