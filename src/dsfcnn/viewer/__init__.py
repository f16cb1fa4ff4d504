"""Results in the browser: a local server and its page. Nothing here needs torch."""
