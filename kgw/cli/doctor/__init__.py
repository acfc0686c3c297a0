"""`kgw doctor`: examinations of a server, of a SeaweedFS and of Spark."""
