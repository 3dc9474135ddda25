"""Names of the metrics that servers export, a file for each kind of server."""
