"""What every other room of workloads is made of: a request, token ids, random streams and the spelling of laws."""
