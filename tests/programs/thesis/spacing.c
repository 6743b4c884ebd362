// 3.1.5: mappings with gaps between them are moved next to each other. A.B.C.D., ABCD....
#include "thesis.h"

int main(int argc, char **argv)
{
	enum { MAPPINGS = 8 };
	for (int n = 0; n < MAPPINGS; n++)
		map_written(2 * n, 1);
	share(argc, argv);
	for (int n = 1; n < MAPPINGS; n++)
		move_to(2 * n, 1, n);
	return finish();
}
