"""Generated worlds: patients whose truth is known."""
