// 3.3.1: the page offset follows a move without a merge, and mprotect merges later.
// AAAAA, A..AA, A..rr, Arr.., AAA..
#include "thesis.h"

int main(int argc, char **argv)
{
	map_written(0, 5);
	unmap(1, 2);
	protect(3, 2, PROT_READ);
	share(argc, argv);
	move_to(3, 2, 1);
	protect(1, 2, PROT_READ | PROT_WRITE);
	return finish();
}
