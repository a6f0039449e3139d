"""Contents that are made when somebody asks for them. Nothing for Python."""
