// 3.1.2: a mapping moves next to a mapping with the same anon_vma. AAAAA, A..AA, AAA..
#include "thesis.h"

int main(int argc, char **argv)
{
	map_written(0, 5);
	unmap(1, 2);
	share(argc, argv);
	move_to(3, 2, 1);
	return finish();
}
