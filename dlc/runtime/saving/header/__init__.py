"""What a file of compiled models says beside code and weights, as JSON and arrays; what is read is not trusted to be any."""
