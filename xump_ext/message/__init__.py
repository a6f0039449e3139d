"""Messages: compact headers, immutable content, and the `Message` that Python sees."""
