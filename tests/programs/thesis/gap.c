// 3.3.3: a mapping fills a gap between two mappings that cannot merge with each other. SS..TT......BB, SSBBTT
#include "thesis.h"

int main(int argc, char **argv)
{
	map_written(0, 2);
	map_written(4, 2);
	share(argc, argv);
	map_written(10, 2);
	move_to(10, 2, 2);
	return finish();
}
