#!/bin/sh
# Measures on a GPU what is only compiled or calculated without one, in order of worth; some ten minutes on one card.
#
#   sh benchmarks/gpu.sh [FILE]        # prints, and keeps it in FILE (gpu.txt)
#
# From the project's root, in its environment with the extras gpu and pretrained; data as benchmarks.cuda takes it. What fails is said, and
# the rest goes on.
file=${1:-gpu.txt}

part() {
	echo
	echo "== $*"
	timeout "${LIMIT:-180}" "$@" || echo "FAILED with status $?: $*"
}

{
	part quartet doctor
	# the speed run of CIFAR-10: the peer airbench names 94 % in 2.59 s on an A100
	part python -m benchmarks.recipes vision/cifar10_fast
	part python -m benchmarks.gpu vision/imagenet_resnet50
	part python -m benchmarks.gpu nlp/imdb_minilm_whole nlp/language speech/librispeech_conformer vision/segmentation
	part python -m benchmarks.gpu vision/digits --replicas 2
	# a GRU by cuDNN, and by XLA's loop
	part python -m benchmarks.gpu recsys/movielens_sequential
	part python -m benchmarks.gpu recsys/movielens_sequential --no-cudnn
	# what a step holds beside what was predicted
	part python -m benchmarks.gpu vision/cifar10_fast vision/detection speech/speech_commands nlp/translation recsys/movielens_retrieval
} 2>&1 | tee "$file"
