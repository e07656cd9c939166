"""What is wrong on this machine and how to mend it. No module but `backend_probe` imports mlx."""
