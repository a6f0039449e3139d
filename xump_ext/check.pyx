def check(engine): pass
