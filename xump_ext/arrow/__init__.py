"""Messages from and to Arrow columns, for `publish_batch` and `take_batch`."""
