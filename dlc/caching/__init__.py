"""What was made once and is used again: found on disk by what it depends on, by any process of a user."""
