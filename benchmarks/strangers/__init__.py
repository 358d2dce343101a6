"""A stranger's data, first time: what `quartet new` writes for them, trained as it is, beside cheap baselines on the same split."""
