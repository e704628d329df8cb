"""Every method on CUB-200-2011 at full size: one resumable command, one page of tables."""
