"""What a training was, took and reached: its logs and its cost, and the page that is made of them."""
