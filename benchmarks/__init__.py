"""Measurements that anyone can run again, each printing its figures; peers come with the extra `bench`."""
