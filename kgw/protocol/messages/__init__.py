"""One module an API, named as the API: its request, its response, their structures."""
