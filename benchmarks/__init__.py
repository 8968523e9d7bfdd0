"""Ours and Apache RocketMQ's, alternating in one run: `make bench`."""
