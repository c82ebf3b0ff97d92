# Few files, most of them without LibTorch's headers: each is compiled by itself.
set_target_properties(am_setup PROPERTIES UNITY_BUILD OFF)
