#!/bin/sh
# A pipeline of five programs.
seq 200000 | tr 0-4 5-9 | sort -n | uniq -c | wc -l
