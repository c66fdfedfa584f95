"""What carries runs through updates: the hand-written YZ engine and its parts, and autograd for any module."""
