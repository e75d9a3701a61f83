"""One pure file per vendor stream: chunks in, events of the calls out; the registry is a literal dict."""
