"""Binary Star: two servers of which one takes requests, and the client that finds it (the Guide, chapter 4)."""
