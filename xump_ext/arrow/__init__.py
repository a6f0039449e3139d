"""Arrow columns in and out: `publish_batch`, `take_batch`."""
