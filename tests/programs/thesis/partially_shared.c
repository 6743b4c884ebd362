// 3.3.2: only the mapping that moves must not be shared. SS....BB, SSBB
#include "thesis.h"

int main(int argc, char **argv)
{
	map_written(0, 2);
	share(argc, argv);
	map_written(6, 2);
	move_to(6, 2, 2);
	return finish();
}
