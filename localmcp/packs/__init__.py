"""Files to give away: packed, verified, mounted, merged."""
