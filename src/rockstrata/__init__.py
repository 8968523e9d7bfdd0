"""Rockstrata: Apache RocketMQ's message store and tiered storage, in Python."""

__version__ = "0.1.0"
