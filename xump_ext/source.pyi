"""Contents that are made when somebody asks for them; for the compiled modules only."""
