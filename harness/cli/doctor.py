command = None
