"""When records are removed, and when they are written anew. Pure."""
