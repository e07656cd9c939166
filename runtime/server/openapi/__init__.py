"""What the server takes and gives, as an OpenAPI document."""
