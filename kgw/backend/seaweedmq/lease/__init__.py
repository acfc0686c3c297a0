"""The lease of a namespace, and the list of its standbys."""
