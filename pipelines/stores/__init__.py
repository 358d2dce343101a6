"""Object stores: data read from them, and runs kept in them."""
