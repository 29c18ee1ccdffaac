"""What is measured on trainings and trained tables, and its pictures."""
