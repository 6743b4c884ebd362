// 3.1.1: a mapping that grows in place meets the next one. AAA, A.A, AAA
#include "thesis.h"

int main(int argc, char **argv)
{
	map_written(0, 3);
	unmap(1, 1);
	share(argc, argv);
	grow(0, 1, 2);
	return finish();
}
