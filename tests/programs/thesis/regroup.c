// 3.1.6: two mappings merge, are separated and merge again elsewhere. AA......BB, AABB, BB................AA, BBAA
#include "thesis.h"

int main(int argc, char **argv)
{
	map_written(0, 2);
	map_written(8, 2);
	share(argc, argv);
	move_to(8, 2, 2);
	move_to(0, 2, 20);
	move_to(2, 2, 18);
	return finish();
}
