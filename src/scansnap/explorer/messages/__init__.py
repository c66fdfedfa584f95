"""What the page and the server say to each other, as Pydantic models: read, described, and shown at /docs."""
