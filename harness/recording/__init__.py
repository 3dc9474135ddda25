"""From the journals of workers to the records and files of a run."""
