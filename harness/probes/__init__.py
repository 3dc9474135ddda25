"""What the client watches of itself while it measures: whether a time stamp can be believed."""
