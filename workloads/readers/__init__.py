"""Files of datasets and traces, read into the workload table: ``detect`` finds the format, a module of ``formats`` reads it."""
