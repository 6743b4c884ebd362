// 3.1.3: a mapping grows up to a mapping with another anon_vma. A..B, AAAB
#include "thesis.h"

int main(int argc, char **argv)
{
	map_written(0, 1);
	map_written(3, 1);
	share(argc, argv);
	grow(0, 1, 3);
	return finish();
}
