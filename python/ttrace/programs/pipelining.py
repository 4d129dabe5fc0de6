def recognises(chunks): return False
