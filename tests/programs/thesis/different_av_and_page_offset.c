// 3.1.4: a mapping moves next to a mapping with another anon_vma. AA....BB, AABB....
#include "thesis.h"

int main(int argc, char **argv)
{
	map_written(0, 2);
	map_written(6, 2);
	share(argc, argv);
	move_to(6, 2, 2);
	return finish();
}
