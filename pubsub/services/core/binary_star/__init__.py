"""Binary Star: two servers, one of which takes requests, and the client that finds it (the Guide, chapter 4)."""
